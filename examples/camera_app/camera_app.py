"""A camera and an app, the whole way: Ann enrols, her camera pushes photos, an app asks, she answers, the app reads.

    blindsight serve                                                     # prints the operator's token
    python examples/camera_app/camera_app.py URL OPERATOR_TOKEN PHOTO...  # two photos of a face or more

Four parties are in one file here; between real ones each has its own machine and only its own token.
"""

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from blindsight.client import Client, enrol


def main(
    url: str, operator_token: str, photos: Sequence[str], *, hide: str = "youth", tell: str = "male", every: float = 1
) -> list[int]:
    """Return what the app gets of Ann, five times the same symbol."""
    # The operator adds Ann and the app, and gets codes, not tokens.
    with Client(url, operator_token) as operator:
        codes = {name: operator.create_principal(name, role)[1] for name, role in (("ann", "owner"), ("door", "app"))}

    # Each redeems a code: a token that nobody else has seen and, for Ann, a key that opens her pictures.
    ann_identity, app_identity = enrol(url, codes["ann"]), enrol(url, codes["door"])
    with Client.of(ann_identity) as ann, Client.of(app_identity) as app:
        # Ann says what nobody shall learn, keeps the newest hundred frames, and makes a token for her camera.
        ann.wait(ann.set_private([hide]).id)
        ann.set_retention(frames=100)
        device, camera_token = ann.add_device("front door", days=365)

        # The camera pushes photos (JPEG, HEIC, ...), to be sealed for Ann's key; its token can do nothing else.
        with Client(url, camera_token, owner_key=ann_identity.public_key) as camera:
            for result in camera.add_frames({Path(name).name: Path(name).read_bytes() for name in photos}):
                print(f"camera: {result.name}: {result.error or 'taken in'}")

        # The app looks what can be had, and asks for one symbol for ever, smoothed over two frames.
        about = app.platform()
        print(f"app: {about.dimension} features; {', '.join(one.name for one in about.attributes)}")
        app.register_app([tell])
        job = app.propose("ann", frames=2, then="permanent")
        verdict = (app.wait(job.id).result or {}).get("verdict")
        print(f"app: verified: {verdict}")

        # Ann reads what it costs her, and allows it (or refuses).
        asked = ann.proposal(job.id)
        print(f"ann reads: {asked.sentence}")
        if verdict != "accept":
            raise SystemExit("The app gets nothing.")
        grant = ann.answer(job.id, "allow").grant

        # The app may ask every second for ever: it is the same symbol, with a receipt of the service's log.
        got = [int(release.rows[0][0]) for release in islice(app.stream("ann", every=every), 5)]
        print(f"app: {tell} = {got}")

        # Ann ends it, and takes her log home.
        ann.revoke_grant(int(grant or 0), "just a try")
        ann.revoke_device(device.id)
        print(f"ann: {sum(1 for _ in ann.log())} entries of the log are about me")
    return got


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
