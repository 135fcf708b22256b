"""Settings that cannot work, or would send tokens readable over a network, are refused with a sentence."""

from pathlib import Path

import pytest

from blindsight.errors import InputError
from blindsight.service.database import open_database
from blindsight.service.settings import ServiceSettings


def test_a_folder_is_enough_and_gets_a_sqlite_file(tmp_path: Path) -> None:
    folder = tmp_path / "state of 100% ?#"  # characters that mean something in a URL
    settings = ServiceSettings(folder)
    assert settings.host == "127.0.0.1"
    assert not settings.encrypted
    assert settings.picture_pixels == 16_000_000
    open_database(settings.database_url).close()
    assert (folder / "service.db").exists()


def test_password_is_in_no_representation(tmp_path: Path) -> None:
    settings = ServiceSettings(tmp_path, database="postgresql://me:hunter2@host/name")
    assert settings.database_url == "postgresql://me:hunter2@host/name"
    assert "hunter2" not in repr(settings)
    with pytest.raises(InputError, match="must be a URL") as caught:
        ServiceSettings(tmp_path, database="mysql://me:hunter2@host/name")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"port": 70_000}, r"port must be in \[0, 65535\]"),
        ({"port": -1}, "got -1"),
        ({"body_bytes": 0}, "body_bytes must be finite and above 0; got 0"),
        ({"requests_per_minute": -5}, "got -5"),
        ({"job_seconds": float("inf")}, "job_seconds must be finite"),
        ({"job_seconds": float("nan")}, "job_seconds must be finite"),
        ({"picture_pixels": 10**9}, "picture_pixels must be at most"),
        ({"host": "0.0.0.0"}, "tokens would travel readable"),
        ({"host": "example.org"}, "Give a certificate and its key"),
        ({"certificate": Path("nowhere.pem")}, "a certificate without a key"),
        ({"key": Path("nowhere.pem")}, "a key without a certificate"),
        ({"certificate": Path("nowhere.pem"), "key": Path("nowhere.pem")}, "the certificate must be a file"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ServiceSettings(tmp_path, **change)


def test_folder_must_not_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="a file"):
        ServiceSettings(tmp_path / "file")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"])
def test_this_machine_needs_no_certificate(tmp_path: Path, host: str) -> None:
    assert ServiceSettings(tmp_path, host=host).host == host


def test_other_hosts_may_be_served_with_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").touch()
    (tmp_path / "key.pem").touch()
    settings = ServiceSettings(
        tmp_path, host="0.0.0.0", certificate=tmp_path / "certificate.pem", key=tmp_path / "key.pem"
    )
    assert settings.encrypted
