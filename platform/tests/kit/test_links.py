"""Templates of links to log and trace systems: which are accepted, and what they become."""

import pytest
from gpuaas_platform.kit import links


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("https://logs.example/search?q={correlation_id}", ""),
        ("http://10.0.0.5:3000/explore?left=%7B%22expr%22:%22{correlation_id}%22%7D&from={start_ms}", ""),
        ("https://logs.example/search", "no {correlation_id}"),
        ("https://logs.example/{correlation_id}/{user}", "unknown placeholder"),
        ("https://logs.example/{correlation_id!r}", "unknown placeholder"),
        ("https://logs.example/{correlation_id.__class__}", "unknown placeholder"),
        ("https://logs.example/{correlation_id:>99999999}", "unknown placeholder"),
        ("https://logs.example/{correlation_id}?a={}", "unknown placeholder"),
        ("https://logs.example/{{correlation_id}}/{correlation_id}", "unknown placeholder"),
        ("https://logs.example/{correlation_id", "%7B"),
        ("javascript:alert('{correlation_id}')", "not an http"),
        ("ftp://logs.example/{correlation_id}", "not an http"),
        ("https://{correlation_id}.example/", "not an http"),
        ("https://[half/{correlation_id}", "IPv6"),
        ("https://logs.example/a b/{correlation_id}", "space"),
        ("https://logs.example/{correlation_id}\n", "space"),
    ],
)
def test_a_template_has_a_fixed_host_and_only_known_placeholders(template: str, problem: str) -> None:
    answer = links.check(template, "correlation_id")
    assert (answer == "") == (problem == "")
    assert problem in answer
