-- Each request creates a service account, with its own name and its own idempotency key.
local thread_count = 0
function setup(thread)
  thread:set("id", thread_count)
  thread_count = thread_count + 1
end
local sent = 0
function request()
  sent = sent + 1
  local name = os.getenv("BENCH_RUN") .. "-" .. id .. "-" .. sent
  local headers = {
    ["Authorization"] = "Bearer " .. (os.getenv("BENCH_TOKEN") or ""),
    ["X-Idempotency-Key"] = name,
    ["Content-Type"] = "application/json",
  }
  return wrk.format("POST", nil, headers, '{"name":"' .. name .. '"}')
end
