// One read and one change with the generated TypeScript types and openapi-fetch: node call.mjs SERVER TOKEN NAME
import createClient from "openapi-fetch";
import type { paths } from "./api.d.ts";

const [, , server, token, name] = process.argv as [string, string, string, string, string];
const client = createClient<paths>({ baseUrl: server, headers: { Authorization: `Bearer ${token}` } });

const me = await client.GET("/api/v1/me");
if (!me.data) throw new Error(me.error.message);
const org = await client.POST("/api/v1/orgs", {
  params: { header: { "X-Idempotency-Key": name } },
  body: { name, first_admin: me.data.name },
});
if (!org.data) throw new Error(org.error.message);
console.log(me.data.name, org.data.name, new Date(org.data.created_at).getUTCFullYear());

const missing = await client.GET("/api/v1/admin/nodes/{node_id}", { params: { path: { node_id: "no-such-node" } } });
console.log(missing.response.status, missing.error?.code);
