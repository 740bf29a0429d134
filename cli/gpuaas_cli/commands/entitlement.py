"""`gpuaas entitlement`: request apps for a project, and refuse such requests. `gpuaas app entitle` grants them.

gpuaas entitlement
    A project requests an app that it may not deploy yet. A tenant admin grants the request with gpuaas app entitle, or
    refuses it with a reason.
gpuaas entitlement offers
    List the published apps, also those that the project may not deploy yet.
gpuaas entitlement request slurm --reason "course in June"
    Request that the project may deploy an app. While a request is open, a further one changes nothing.
    app_slug APP
    --reason: Why the project needs the app; shown to the admin who decides.
gpuaas entitlement requests
gpuaas entitlement requests --state open
    List the requests of the project for apps.
gpuaas entitlement refuse slurm --reason "use the shared cluster"
    Refuse the open request of the project for an app.
    --reason: Why it is refused; shown to the project.
"""

from gpuaas_contract import entitlement_requests

from gpuaas_cli.runner import Command

COMMANDS = {
    "entitlement offers": entitlement_requests.OFFER_LIST,
    "entitlement request": Command(
        entitlement_requests.ENTITLEMENT_REQUEST_CREATE,
        next=lambda made: f"a tenant admin: gpuaas app entitle {made.app_slug}" if made.state == "open" else "",
    ),
    "entitlement requests": entitlement_requests.ENTITLEMENT_REQUEST_LIST,
    "entitlement refuse": entitlement_requests.ENTITLEMENT_REQUEST_REFUSE,
}
