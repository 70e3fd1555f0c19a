"""The strategies: each turns a network and devices into an assignment of layers to devices."""
