"""The review server: who may ask, what is answered, and that decisions are on the disk."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the review server's framework is not installed: extra [review]")
from starlette.testclient import TestClient

from cleanse.report.listing import Filter, Listing
from cleanse.report.scan_facts import ScanFacts
from cleanse.report.server import Review, application


@pytest.fixture
def out(hostile_out: Path, tmp_path: Path) -> Path:
    shutil.copytree(hostile_out, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def client(out: Path) -> TestClient:
    return TestClient(application(Review(out), "secret"), base_url="http://127.0.0.1:8000")


def test_who_does_not_know_the_token_sees_nothing(client: TestClient) -> None:
    assert client.get("/secret/").status_code == 200
    for path in ("/", "/wrong/", "/secre/", "/secret2/api/records", "/api/records"):
        assert client.get(path).status_code == 404


def test_another_name_for_this_machine_is_refused(client: TestClient) -> None:
    assert client.get("/secret/", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/secret/", headers={"host": "localhost:9"}).status_code == 200


def test_the_page_may_ask_its_own_server_and_no_other(client: TestClient) -> None:
    answer = client.get("/secret/")
    assert "connect-src 'self'" in html.unescape(answer.text)
    assert (answer.headers["cache-control"], answer.headers["referrer-policy"]) == ("no-store", "no-referrer")


def test_records_are_paged_and_each_comes_once(client: TestClient, out: Path) -> None:
    seen: list[str] = []
    while True:
        answer = client.get("/secret/api/records", params={"state": "held", "offset": len(seen), "limit": 3}).json()
        if not answer["records"]:
            break
        seen += [record["id"] for record in answer["records"]]
    assert len(seen) == len(set(seen)) == answer["total"]
    assert seen == [key.id for key in ScanFacts(out).rows.quarantined_keys()]


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter(state="any"),
        Filter(state="repaired"),
        Filter(state="any", rule="encoding.bidi-override"),
        Filter(state="any", q="gnp.exe"),
        Filter(state="any", q="SCRIPT"),
        Filter(state="any", q="river number 7."),
        Filter(state="any", source="nowhere"),
        Filter(state="held", q="owned"),
    ],
)
def test_filters_agree_with_a_plain_reading(out: Path, wanted: Filter) -> None:
    facts = ScanFacts(out)
    listing = Listing(facts)
    total, records = listing.page(wanted, {}, 0, 10_000)
    _, everything = listing.page(Filter(state="any"), {}, 0, 10_000)

    def fits(record: dict) -> bool:
        state = {"quarantined": "held"}.get(record["state"], record["state"])
        if wanted.state not in ("any", state) or wanted.source not in ("", record["source"]):
            return False
        if wanted.rule and wanted.rule not in {f["rule"] for f in record["findings"]}:
            return False
        return wanted.q.lower() in json.dumps([record, _text(facts, record)], ensure_ascii=False).lower()

    assert [r["id"] for r in records] == [r["id"] for r in everything if fits(r)]
    assert total == len(records)


def _text(facts: ScanFacts, record: dict) -> list:
    from cleanse.report.rows import Key

    key = Key(record["source"], record["row"])
    found = facts.rows.quarantined(key) or facts.rows.clean(key, lambda _: True)
    return [str(value) for value in found.values()]


def test_decisions_are_saved_as_they_are_made_and_found_again(client: TestClient, out: Path) -> None:
    first, second = (key.id for key in list(ScanFacts(out).rows.quarantined_keys())[:2])
    changes = [{"id": first, "decision": "release", "note": "fine"}, {"id": second, "decision": "agree", "note": ""}]
    assert client.post("/secret/api/decisions", json={"changes": changes}).json() == {"saved": 2}
    saved = json.loads((out / "decisions.json").read_text())
    assert saved["format"] == "cleanse-decisions/1"
    assert sorted(saved["decisions"], key=str) == sorted(changes, key=str)
    released = client.get("/secret/api/records", params={"state": "any", "decision": "release"}).json()
    assert [record["id"] for record in released["records"]] == [first]
    client.post("/secret/api/decisions", json={"changes": [{"id": first, "decision": None}]})
    assert [d["id"] for d in json.loads((out / "decisions.json").read_text())["decisions"]] == [second]
    again = TestClient(application(Review(out), "t"), base_url="http://127.0.0.1")
    data = re.search(r'id="data">(.*?)</script>', again.get("/t/").text)
    assert [d["id"] for d in json.loads(data[1])["decisions"]] == [second]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"changes": [{"id": "a", "decision": "burn"}]}', "application/json", 400),
        (b'{"changes": []}', "text/plain", 415),
        (b'{"changes": "' + b"x" * (5 << 20) + b'"}', "application/json", 413),
    ],
)
def test_what_is_no_decision_changes_nothing(
    client: TestClient, out: Path, body: bytes, kind: str, status: int
) -> None:
    answer = client.post("/secret/api/decisions", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert not (out / "decisions.json").exists()


def test_numbers_that_are_none_are_refused(client: TestClient) -> None:
    assert client.get("/secret/api/records", params={"offset": "x"}).status_code == 400


def test_the_command_serves_on_this_machine_alone(out: Path) -> None:
    command = [sys.executable, "-m", "cleanse", "review", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            assert len(address.split("/")[3]) >= 32
            with urllib.request.urlopen(address) as answer:
                assert b"cleanse review" in answer.read()
        finally:
            server.terminate()
            server.wait(20)


def test_a_port_that_is_taken_is_an_error_in_words(out: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "cleanse", "review", str(out), "--port", port],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert "another --port" in done.stderr
