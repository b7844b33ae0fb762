"""An S3 server of our own, and a fresh bucket in it for each test. ``conftest.py`` hands the fixtures to all rooms."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cleanse.errors import CleanseError
from cleanse.evidence import Between
from cleanse.state import RunState
from cleanse.storage import filesystem

_ACCESS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # no question to a network that is not there
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1",
}


@dataclass
class Bucket:
    """A bucket, seen through a client that is not ours."""

    name: str
    endpoint: str
    client: Any

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> str:
        """Stores an object; returns its URL."""
        self.client.put_object(Bucket=self.name, Key=key, Body=data)
        return f"{self.url}/{key}"

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.name, Key=key)["Body"].read())

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def delete(self, *keys: str) -> None:
        for key in keys:
            self.client.delete_object(Bucket=self.name, Key=key)


class LostDriver:
    """A witness after which the main process cannot go on."""

    name = "breaks"

    def gather(self, between: Between) -> None:
        raise CleanseError("the driver is lost")

    def account(self, state: RunState) -> None:
        return None


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a server that lives as long as the tests of this process."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket, and the environment in which every client, also one in a child process, finds it."""
    boto3 = pytest.importorskip("boto3")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**_ACCESS, "AWS_ENDPOINT_URL": s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    filesystem._native.cache_clear()  # a client keeps the endpoint that it was made with
    bucket = Bucket(f"cleanse-{uuid.uuid4().hex[:12]}", s3_endpoint, boto3.client("s3", endpoint_url=s3_endpoint))
    bucket.client.create_bucket(Bucket=bucket.name)
    yield bucket
    bucket.delete(*bucket.keys())
    bucket.client.delete_bucket(Bucket=bucket.name)
    filesystem._native.cache_clear()
