"""A client of `launch serve examples/triton`: sends a tensor with Triton's library, and a picture.

    python examples/triton/client.py [PICTURE] [--server HOST:PORT]

It prints what was found, and writes `found.jpg` to the current folder. It needs
`tritonclient[http]` and Pillow.
"""

import argparse
import base64
import json
import urllib.request
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from PIL import Image

BALLS = Path(__file__).parents[1] / "balls"

parser = argparse.ArgumentParser()
parser.add_argument("picture", nargs="?", type=Path, default=BALLS / "pictures" / "table-3.jpg")
parser.add_argument("--server", default="127.0.0.1:8000")
asked = parser.parse_args()

# Tensors, as every server of the Open Inference Protocol takes them: the client fits the picture
# to the network's input, and gets the network's outputs.
with triton.InferenceServerClient(asked.server) as client:
    (taken,) = client.get_model_metadata("balls")["inputs"]
    height, width = taken["shape"][2:]
    pixels = np.asarray(Image.open(asked.picture).convert("RGB").resize((width, height)))
    tensor = (pixels.transpose(2, 0, 1)[None] / 255).astype(np.float32)
    given = triton.InferInput(taken["name"], list(tensor.shape), taken["datatype"])
    given.set_data_from_numpy(tensor)
    rows = client.infer("balls", [given]).as_numpy("output0")
    print(f"tensor {tensor.shape}: output {rows.shape}, best score {rows[0, 4:].max():.2f}")

# A picture: the server fits it, decodes the outputs, and draws them.
url = f"http://{asked.server}/v1/predict/balls?as=both"
with urllib.request.urlopen(url, asked.picture.read_bytes()) as response:
    answer = json.load(response)
for each in answer["predictions"]["objects"]:
    print(f"{each['name']} {each['score']:.2f} at {each['box']}")
Path("found.jpg").write_bytes(base64.b64decode(answer["picture"].partition(",")[2]))
