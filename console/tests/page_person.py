"""People who use the console over HTTP, in tests."""

import re
from dataclasses import dataclass, field

import httpx


@dataclass
class Person:
    """A browser without scripts: it keeps cookies and sends the forms of pages."""

    http: httpx.Client
    project_id: str
    csrf: str = field(default="", repr=False)

    def get(self, path: str, **query: str) -> httpx.Response:
        answer = self.http.get(self.path(path), params=query or None)
        self._remember(answer)
        return answer

    def page(self, path: str, **query: str) -> str:
        answer = self.get(path, **query)
        assert answer.status_code == 200, f"{path}: {answer.status_code}\n{answer.text}"
        return answer.text

    def post(self, path: str, **fields: str | list[str]) -> httpx.Response:
        answer = self.http.post(self.path(path), data={"csrf": self.csrf, **fields})
        self._remember(answer)
        return answer

    def path(self, path: str) -> str:
        return path.replace("PROJECT", f"/p/{self.project_id}")

    def sign_in(self, name: str, password: str, **fields: str) -> httpx.Response:
        self.get("/sign-in")
        answer = self.post("/sign-in", name=name, password=password, **fields)
        if answer.status_code == 303:
            self.get("/")
        return answer

    def _remember(self, answer: httpx.Response) -> None:
        token = re.search(r'name="csrf" value="([^"]+)"', answer.text)
        self.csrf = token[1] if token else self.csrf
