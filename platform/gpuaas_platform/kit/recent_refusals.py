"""The last refused requests of each project, in the memory of this process, so that a correlation id in an error leads
to the request. A refused request changes nothing, so nothing else is stored about it. `edge` adds, `operations` reads.

Memory is bounded per project: a caller who is refused often cannot push out the requests of other projects."""

import collections

from gpuaas_contract.correlations import RefusedRequest

PER_PROJECT = 200
PROJECTS_MAX = 500
MESSAGE_MAX = 500


class RecentRefusals:
    def __init__(self) -> None:
        self._by_project: collections.OrderedDict[str, collections.deque[tuple[str, RefusedRequest]]]
        self._by_project = collections.OrderedDict()

    def add(self, project_id: str, correlation_id: str, request: RefusedRequest) -> None:
        requests = self._by_project.setdefault(project_id, collections.deque(maxlen=PER_PROJECT))
        requests.append((correlation_id, request))
        self._by_project.move_to_end(project_id)
        if len(self._by_project) > PROJECTS_MAX:
            self._by_project.popitem(last=False)

    def under(self, project_id: str, correlation_id: str) -> list[RefusedRequest]:
        """Return the refused requests of a project with this correlation id, oldest first."""
        return [request for known, request in self._by_project.get(project_id, ()) if known == correlation_id]
