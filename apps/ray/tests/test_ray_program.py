"""The program on a machine, with processes and answers of Ray that are given."""

import http.server
import io
import json
import os
import threading
import urllib.request
from pathlib import Path

import pytest
from gpuaas_app_ray.workload import program

RAYLET = ["/opt/x/raylet", "--gcs-address=10.0.0.1:6379", "--node_id=abc"]
HEAD, WORKER = "http://127.0.0.1:8265/api/gcs_healthz", "http://10.0.0.2:52365/api/local_raylet_healthz"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    running = [RAYLET, ["ray::IDLE"], ["ray::train"], ["ray::DashboardAgent"], ["ray::JobSupervisor.run"], ["sshd"]]
    answers = {HEAD: "success", WORKER: "success"}
    jobs = [{"submission_id": "j1", "job_id": None, "end_time": None}, {"submission_id": "j2", "end_time": 5}]
    answers["http://127.0.0.1:8265/api/jobs/"] = json.dumps(jobs)

    def answer(opener: object, request: urllib.request.Request, timeout: float) -> io.BytesIO:
        return io.BytesIO(answers[request.full_url].encode())

    monkeypatch.setattr(program, "DATA", tmp_path)
    monkeypatch.setattr(program, "processes", lambda: running)
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", answer)
    return tmp_path


def test_work_on_a_worker_is_what_ray_names_its_processes_after(machine: Path) -> None:
    view = program.look([WORKER])
    assert view == {
        "health": "success",
        "runs": True,
        "closed": False,
        "work": ["ray::JobSupervisor.run", "ray::train"],
    }


def test_work_on_the_head_is_also_each_job_that_has_not_ended(machine: Path) -> None:
    (machine / "token").write_text("secret")
    (machine / "closed").touch()
    view = program.look([WORKER, HEAD])
    assert view["work"] == ["ray::train", "job j1"]
    assert view["closed"]


def test_a_user_without_rights_sees_whether_ray_runs(machine: Path) -> None:
    """Health checks run as such a user, who cannot look into the folder of the token."""
    machine.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        view = program.look([WORKER])
    finally:
        if is_root:
            os.seteuid(0)
        machine.chmod(0o700)
    assert (view["health"], view["runs"], view["closed"]) == ("success", True, False)


def test_a_head_is_healthy_only_if_its_own_node_is(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control service answers before the node of the head has joined, and Ray ends if that takes too long."""
    answers = {HEAD: "success", WORKER: "Local Raylet failed"}
    monkeypatch.setattr(program, "call", lambda method, url: answers[url])
    assert program.look([WORKER, HEAD])["health"] == "Local Raylet failed"


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"success")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def test_the_proxy_of_the_machine_is_not_asked_about_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        serving = threading.Thread(target=server.handle_request)
        server.timeout = 30
        serving.start()
        assert program.look([f"http://127.0.0.1:{server.server_port}/"])["health"] == "success"
        serving.join()


def test_a_machine_without_ray_has_nothing_to_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "processes", lambda: [["sshd"]])
    assert program.drain() == 0


def test_the_processes_of_this_machine_are_read() -> None:
    assert any("python" in words[0] for words in program.processes())
