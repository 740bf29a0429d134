"""Report the status of custody, and unseal it with a passphrase."""

import functools

from gpuaas_contract import custody, errors
from gpuaas_contract.wire import NoBody

from gpuaas_platform.access import values
from gpuaas_platform.access.machines import authority
from gpuaas_platform.call import Call
from gpuaas_platform.custody.port import PassphraseWrong
from gpuaas_platform.kit import attempts
from gpuaas_platform.kit.attempts import Key
from gpuaas_platform.record import service as record


async def get_custody(call: Call, _: NoBody) -> custody.CustodyStatus:
    status = await call.site.custody.status()
    return custody.CustodyStatus(
        store=status.store, sealed=status.sealed, key=status.key, refused=status.refused, fix=status.fix
    )


async def unseal(call: Call, body: custody.Unseal) -> custody.CustodyStatus:
    guesses = [Key(f"unseal:{call.caller.actor_id}", attempts.OWN), Key("unseal", attempts.SHARED)]
    wait_s = call.site.attempts.wait_s(guesses, call.now)
    if wait_s:
        raise errors.TooManyAttempts(details={"retry_after_s": wait_s})
    if not call.dry_run:
        try:
            with values.translated(PassphraseWrong):
                await call.site.custody.unseal(body.passphrase)
            call.site.hub.notify(authority.TOPIC)
        except PassphraseWrong as error:
            call.site.attempts.failed(guesses, call.now)
            await _audit(call, "failure")
            raise errors.ValidationFailed(
                "The passphrase is wrong: the key that encrypts secrets cannot be decrypted with it.",
                details={"field": "passphrase"},
            ) from error
    await _audit(call, "success")
    return await get_custody(call, NoBody())


async def _audit(call: Call, result: str) -> None:
    audit = functools.partial(
        record.audit, origin=call.origin, action=call.origin.route, target="custody", result=result
    )
    await call.site.database.write(audit)
