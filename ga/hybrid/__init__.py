"""The hybrid strategy: splits layers, and assigns any part to any device."""
