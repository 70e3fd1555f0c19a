"""A client of `launch serve examples/digits/cluster.yaml`: prints the digit that it recognises."""

import json
import urllib.request

import numpy as np

image = np.load("examples/digits/test_images.npy")[0]
tensor = {
    "name": "image",
    "datatype": "FP32",
    "shape": [1, 1, 8, 8],
    "data": image.ravel().tolist(),
}
url = "http://127.0.0.1:8000/v2/models/digits/infer"
with urllib.request.urlopen(url, json.dumps({"inputs": [tensor]}).encode()) as answer:
    print(np.argmax(json.load(answer)["outputs"][0]["data"]))
