"""Certifies a plan and checks the certificate, the last step before anything is deployed.

The certificate follows from the text of the plan's `plan.json`. The checker
(`csdf.certificates.check`) shares no code with the planner: it derives the plan's graph from that
text by the definitions, so it finds mistakes in the planner's own proofs.
"""

from __future__ import annotations

import json

from csdf.certificates.check import RefusedError, check
from csdf.certificates.plans import certify_plan
from csdf.errors import CsdfError
from launcher.errors import UncertifiedError


def certificate_of(text: str) -> str:
    """Return the certificate of the plan in this text of a `plan.json`, after checking it.

    Raises `UncertifiedError` if there is none, or if the checker refuses it.
    """
    file = text.encode()
    try:
        certificate = json.dumps(certify_plan(file).content)
        check(certificate.encode(), file)
    except (CsdfError, RefusedError) as error:
        raise UncertifiedError(
            f"the plan's certificate is refused: {error}; this is an error in the planner or in "
            "the certificate, and not in what you wrote. Nothing was deployed; please report it "
            "with the model and cluster.yaml, and try another strategy meanwhile"
        ) from error
    return certificate + "\n"
