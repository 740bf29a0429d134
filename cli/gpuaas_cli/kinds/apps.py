"""App versions and which of them a project may deploy, artifacts, and the keys whose signatures on them count."""

from gpuaas_contract import artifacts, catalog, trust_keys

from gpuaas_cli.kinds.kind import Kind


def _source(artifact: artifacts.Artifact) -> str:
    source = artifact.source
    if isinstance(source, artifacts.HttpSource):
        return source.url
    return source.reference if isinstance(source, artifacts.OciSource) else "local"


KINDS = (
    Kind(
        "apps",
        catalog.PROJECT_APP_LIST,
        "app_slug",
        "APP=app_slug VERSION STATE CHANNELS TOPOLOGIES ROLES* AGE=created_at* SUMMARY",
        {
            "TOPOLOGIES": lambda version: ",".join(version.manifest.topologies),
            "ROLES": lambda version: ",".join(role.component_key for role in version.manifest.roles),
            "SUMMARY": lambda version: version.summary or version.display_name,
        },
        known_by=("app_slug",),
        listing_all=catalog.VERSION_LIST,
    ),
    Kind(
        "entitlements",
        catalog.ENTITLEMENT_LIST,
        "app_slug",
        "APP=app_slug ENTITLED=enabled VERSIONS CHANNELS INSTANCES_MAX MEMBERS_MAX AGE=changed_at BY=changed_by* "
        "PROJECT=project_id",
        {
            "VERSIONS": lambda entitlement: ",".join(entitlement.versions) or "all",
            "CHANNELS": lambda entitlement: ",".join(entitlement.channels) or "all",
        },
        getting=catalog.ENTITLEMENT_GET,
    ),
    Kind(
        "artifacts",
        artifacts.LIST,
        "artifact_id",
        "ARTIFACT=artifact_id NAME LIFECYCLE TRUST CHANNELS BYTES=size_bytes AGE=created_at DIGEST MEDIA_TYPE* "
        "SOURCE* WHY",
        {"SOURCE": _source, "WHY": lambda artifact: artifact.reason or artifact.trust_message},
        getting=artifacts.GET,
        is_gone=lambda artifact: artifact.lifecycle == "retired",
    ),
    Kind(
        "trust-keys",
        trust_keys.TRUST_KEY_LIST,
        "trust_key_id",
        "KEY=trust_key_id STATE SCOPE BY=created_by* AGE=created_at FINGERPRINT",
        {"STATE": lambda key: "revoked" if key.revoked_at else "trusted"},
        known_by=("trust_key_id", "fingerprint"),
    ),
)
