"""The page about the service keeps its word: its curl lines, run as they stand, lead from a token to a release."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from smallservice import serving

from blindsight.data import faces
from blindsight.service.api import create_app
from blindsight.service.gateway import Gateway
from blindsight.service.log import verify_export
from blindsight.service.settings import ServiceSettings
from blindsight.service.verification import drawn_frames
from blindsight.sift.trial import QUICK
from blindsight.sift.verify import Verifier

DOCS = Path(__file__).resolve().parents[2] / "docs" / "serve.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Address and operator's token of a service on fewer faces, judged by fewer attackers, than by default."""
    settings = ServiceSettings(tmp_path_factory.mktemp("docs") / "service", verdict_seconds=1)
    gateway = Gateway.open(settings, faces(2400, pictures_per_person=1, random_state=0), verifier=Verifier(QUICK))
    token = gateway.principals.first_run()
    gateway.start()
    with serving(create_app(settings, gateway)) as url:
        yield url, str(token)
    gateway.close()


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("bash"), reason="curl or bash is not installed")
def test_the_curl_lines_lead_to_a_release(service, tmp_path):
    url, token = service
    (tmp_path / "face.png").write_bytes(drawn_frames(1, random_state=77)[0])
    lines, field = re.findall(r"```sh\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    script = f"set -euo pipefail\n{field}\n{lines}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "URL": url, "OPERATOR": token}
        | ({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "App camera asks for smiling. You hide male." in done.stdout
    release = re.search(r'\{"grant": ?\d+, ?"rows"', done.stdout)
    assert release is not None
    assert json.JSONDecoder().raw_decode(done.stdout, release.start())[0]["labels"] == ["smiling"]
    assert '"standing":"revoked"' in done.stdout
    check = verify_export(tmp_path / "log.jsonl")
    assert check.ok
    assert check.entries > 8
