"""Settings that cannot work, or would send tokens readable over a network, are refused with a sentence."""

from pathlib import Path

import pytest

from blindsight.errors import InputError
from blindsight.service.settings import ServiceSettings
from blindsight.service.store import open_database


def test_a_folder_is_enough_and_gets_a_sqlite_file(tmp_path):
    folder = tmp_path / "state of 100% ?#"  # characters that mean something in a URL
    settings = ServiceSettings(folder)
    assert settings.host == "127.0.0.1"
    assert not settings.encrypted
    assert settings.picture_pixels == 50_000_000
    open_database(settings.database_url).close()
    assert (folder / "service.db").exists()


def test_password_is_in_no_representation(tmp_path):
    settings = ServiceSettings(tmp_path, database="postgresql://me:hunter2@host/name")
    assert settings.database_url == "postgresql://me:hunter2@host/name"
    assert "hunter2" not in repr(settings)
    with pytest.raises(InputError, match="URL") as caught:
        ServiceSettings(tmp_path, database="mysql://me:hunter2@host/name")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"port": 70_000}, "70000"),
        ({"port": -1}, "-1"),
        ({"body_bytes": 0}, "body_bytes"),
        ({"requests_per_minute": -5}, "-5"),
        ({"job_seconds": float("inf")}, "job_seconds"),
        ({"job_seconds": float("nan")}, "job_seconds"),
        ({"picture_pixels": 10**9}, "picture_pixels"),
        ({"host": "0.0.0.0"}, "readable"),
        ({"host": "example.org"}, "certificate"),
        ({"certificate": Path("nowhere.pem")}, "without a key"),
        ({"key": Path("nowhere.pem")}, "without a certificate"),
        ({"certificate": Path("nowhere.pem"), "key": Path("nowhere.pem")}, "file"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, change, named):
    with pytest.raises(InputError, match=named):
        ServiceSettings(tmp_path, **change)


def test_folder_must_not_be_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        ServiceSettings(tmp_path / "file")


def test_this_machine_needs_no_certificate_and_others_do(tmp_path):
    for host in ("localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"):
        assert ServiceSettings(tmp_path, host=host).host == host
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.touch()
    key.touch()
    assert ServiceSettings(tmp_path, host="0.0.0.0", certificate=certificate, key=key).encrypted
