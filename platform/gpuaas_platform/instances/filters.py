"""Pure: the filters of the lists of instances and members as SQL conditions. `service` reads a page with them."""

from gpuaas_contract.instances import InstanceListQuery, MemberListQuery

from gpuaas_platform.instances import store

Condition = tuple[str, list[str]]
"""SQL after WHERE, and its values."""


def instances(project_id: str, query: InstanceListQuery) -> Condition:
    chosen = {
        "status = {}": query.status or "",
        "lower(name || ' ' || app_slug) LIKE {} ESCAPE '!'": like(query.search),
    }
    # Every other status means that the instance is live. The condition lets the engines use the index of statuses.
    is_live = query.live or query.status not in (None, "deleted")
    return _all(store.LIVE_INSTANCES if is_live else "project_id = $1", project_id, chosen)


def members(instance_id: str, query: MemberListQuery) -> Condition:
    chosen = {
        "status = {}": query.status or "",
        "component_key = {}": query.component_key,
        "lower(node_name) LIKE {} ESCAPE '!'": like(query.search),
    }
    return _all(store.LIVE_MEMBERS if query.live else "instance_id = $1", instance_id, chosen)


def like(text: str) -> str:
    """Return a pattern for texts that contain this one; empty: every text."""
    escaped = text.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%" if text else ""


def _all(first: str, owner_id: str, chosen: dict[str, str]) -> Condition:
    parts, values = [first], [owner_id]
    for condition, value in chosen.items():
        if value:
            values.append(value)
            parts.append(condition.format(f"${len(values)}"))
    return " AND ".join(parts), values
