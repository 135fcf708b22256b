"""examples/camera_app, run against a service on a socket."""

import runpy
from pathlib import Path

from smallservice import frames, open_service, serving

from blindsight.service.api import create_app

EXAMPLE = Path(__file__).parents[3] / "examples" / "camera_app" / "camera_app.py"


def test_the_whole_way_of_a_camera_and_an_app(tmp_path, capsys):
    photos = []
    for number, content in enumerate(frames(2)):
        photos.append(tmp_path / f"{number}.png")
        photos[-1].write_bytes(content)
    gateway = open_service(tmp_path / "service", stream_seconds=0.01, requests_per_minute=10**6)
    token = str(gateway.principals.first_run())
    gateway.start()
    try:
        with serving(create_app(gateway.settings, gateway)) as url:
            main = runpy.run_path(str(EXAMPLE))["main"]
            got = main(url, token, list(map(str, photos)), hide="smiling", tell="gender", every=0.01)
    finally:
        gateway.close()
    assert len(got) == 5
    assert len(set(got)) == 1
    said = capsys.readouterr().out
    assert "0.png: taken in" in said
    assert "verified: accept" in said
    assert "every app gets the same, for ever" in said
