"""Turns the predictions that `launch --output` writes into CSV: a row for each object.

    python examples/csv/to_csv.py found/predictions.jsonl > found.csv

Edges are in pixels of the picture. A picture in which nothing was found has one row without object.
"""

import csv
import json
import os
import sys

if len(sys.argv) != 2 or not os.path.isfile(sys.argv[1]):
    sys.exit("usage: to_csv.py PREDICTIONS.JSONL, the file that launch --output writes")
table = csv.writer(sys.stdout, lineterminator="\n")
table.writerow(["picture", "object", "score", "left", "top", "right", "bottom"])
with open(sys.argv[1], encoding="utf-8") as lines:
    for line in lines:
        result = json.loads(line)
        found = result["predictions"]["objects"]
        for each in found:
            name = each.get("name", each["class"])
            table.writerow([result["name"], name, each["score"], *each["box"]])
        if not found:
            table.writerow([result["name"]] + [""] * 6)
