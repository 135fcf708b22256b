"""The page about the service keeps its word: its curl lines, run as they stand, lead from a token to a release."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from blindsight.client import Client
from blindsight.data import faces
from blindsight.errors import PrivacyError
from blindsight.service.api import create_app
from blindsight.service.foundation import drawn_frames
from blindsight.service.gateway import Gateway
from blindsight.service.log import verify_export
from blindsight.service.settings import ServiceSettings
from blindsight.sift.lossbench import QUICK
from blindsight.sift.verify import Verifier

DOCS = Path(__file__).resolve().parents[2] / "docs" / "serve.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and operator's token of a service on fewer faces, judged by fewer attackers, than by default."""
    settings = ServiceSettings(tmp_path_factory.mktemp("docs") / "service")
    gateway = Gateway.open(settings, faces(2000, pictures_per_person=2, random_state=0), verifier=Verifier(QUICK))
    token = gateway.principals.first_run()
    server = uvicorn.Server(uvicorn.Config(create_app(settings, gateway), port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    gateway.start()
    while not server.started:
        assert thread.is_alive()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", str(token)
    server.should_exit = True
    thread.join()
    gateway.close()


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("bash"), reason="curl or bash is not installed")
def test_the_curl_lines_lead_to_a_release(service: tuple[str, str], tmp_path: Path) -> None:
    url, token = service
    (tmp_path / "face.png").write_bytes(drawn_frames(1, random_state=77)[0])
    lines, field = re.findall(r"```sh\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    script = f"set -euo pipefail\n{field}\n{lines}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "URL": url, "OPERATOR": token},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "App camera asks for smiling. You hide male." in done.stdout
    release = re.search(r'\{"grant": ?\d+, ?"rows".*?\]\]?.*?\}', done.stdout)
    assert release is not None
    assert json.loads(release.group())["labels"] == ["smiling"]
    assert '"standing":"revoked"' in done.stdout
    check = verify_export(tmp_path / "log.jsonl")
    assert check.ok
    assert check.entries > 8


def test_the_client_goes_the_same_way(service: tuple[str, str]) -> None:
    url, token = service
    with Client(url, token) as operator:
        tokens = {name: operator.create_principal(name, role)[1] for name, role in (("bob", "owner"), ("lens", "app"))}
    with Client(url, tokens["bob"]) as bob, Client(url, tokens["lens"]) as lens:
        bob.set_private(["male"])
        bob.add_frame(drawn_frames(1, random_state=78)[0])
        lens.register_app(["smiling"])
        job = lens.propose("bob")
        assert lens.wait(job.id, pause=0.05).state == "done"
        assert lens.proposal(job.id).evidence is None
        grant = bob.answer(job.id, "allow").grant
        assert grant is not None
        released = lens.release("bob", latest=1)
        assert (released.labels, len(released.rows)) == (("smiling",), 1)
        assert bob.revoke_grant(grant, "I moved house").standing == "revoked"
        with pytest.raises(PrivacyError):
            lens.release("bob", latest=1)
