"""The Lua scripts of a queue's reader, and of the publisher's side of inbound QoS 2: fenced by the reader epoch.

Knows keys by their order (`names`), and no connection. Forms of what is stored: `scripts`.

Theory: a reader's calls are numbered within its epoch; the queue keeps the last number as `moved`.

Invariant: a call whose number is not above `moved` changes nothing. A call that was given up and repeated may still arrive after later ones,
and would lower what is reserved or reopen what is finished.
"""

from __future__ import annotations

from iothub_services.queues.redis.scripts import COMMON
from iothub_services.redis.calls import Script

RECORD_VERSION = 1
IDS_KEPT = 10_000  # of one queue, beyond their records
ID_KEPT_MS = 24 * 3600 * 1000

_FENCED = """
local function is_late(sequence)
  if tonumber(redis.call('HGET', meta, 'moved') or '0') >= tonumber(sequence) then return true end
  redis.call('HSET', meta, 'moved', sequence)
  return false
end
"""

# ARGV: epoch, sequence, now (ms), how long (ms) and how many ids are kept; then pairs of kind and value.
# Returns 'gone' | 'stale' | 'late' | {messages, bytes}.
MOVE = Script(
    COMMON
    + _FENCED
    + """
local state, refusal = numbers('epoch', 'tail', 'head', 'messages', 'bytes')
if refusal then return refusal end
if state[1] ~= ARGV[1] then return 'stale' end

local tail, head, now = tonumber(state[2]), tonumber(state[3]), ARGV[3]
messages, bytes = tonumber(state[4]), tonumber(state[5])
passes_out_of_memory()
if is_late(ARGV[2]) then return 'late' end

local function acknowledge(upto)
  if upto <= head then return end
  local from = head + 1
  while true do
    local part = redis.call('XRANGE', records, text(from), text(upto), 'COUNT', 128)
    for _, entry in ipairs(part) do forget(entry, now) end
    if #part < 128 then break end
    from = position_of(part[#part]) + 1
  end
  redis.call('XTRIM', records, 'MINID', text(upto + 1))
  redis.call('ZREMRANGEBYSCORE', released, '-inf', text(upto))
  head = upto
end

local function record_inbound(packet_id)
  local kept = redis.call('HGET', inbound, packet_id)
  if not kept then
    redis.call('HSET', inbound, packet_id, 'r')
  elseif string.sub(kept, 1, 1) == 'o' then
    redis.call('HSET', inbound, packet_id, 'r' .. string.sub(kept, 2, 17))
  end
end

for at = 6, #ARGV, 2 do
  local kind, value = ARGV[at], tonumber(ARGV[at + 1])
  if kind == '1' then
    acknowledge(math.min(value, tail))
  elseif kind == '2' then
    if head < value and value <= tail then redis.call('ZADD', released, ARGV[at + 1], ARGV[at + 1]) end
  elseif kind == '3' then
    redis.call('HSET', meta, 'reserved', ARGV[at + 1])
  elseif kind == '4' then
    redis.call('HDEL', inbound, ARGV[at + 1])
  else
    record_inbound(ARGV[at + 1])
  end
end
if head ~= tonumber(state[3]) then
  redis.call('HSET', meta, 'head', text(head))
  count()
  forget_ids(tonumber(now), tonumber(ARGV[4]), tonumber(ARGV[5]))
end
return {text(messages), text(bytes)}
"""
)

# ARGV: epoch, sequence; then of each Packet Identifier, message id, whether it is routed already (0, 1), intent.
# Returns 'gone' | 'stale' | 'late' | for each `n` (new), or `o`, `r` with the message id that is kept.
INTEND = Script(
    COMMON
    + _FENCED
    + """
local state, refusal = numbers('epoch')
if refusal then return refusal end
if state[1] ~= ARGV[1] then return 'stale' end
if is_late(ARGV[2]) then return 'late' end
local found = {}
for at = 3, #ARGV, 4 do
  local kept = redis.call('HGET', inbound, ARGV[at])
  if kept then
    found[#found + 1] = string.sub(kept, 1, 17)
  elseif ARGV[at + 2] == '1' then
    redis.call('HSET', inbound, ARGV[at], 'r' .. ARGV[at + 1])
    found[#found + 1] = 'n'
  else
    redis.call('HSET', inbound, ARGV[at], 'o' .. ARGV[at + 1] .. ARGV[at + 3])
    found[#found + 1] = 'n'
  end
end
return found
"""
)

# ARGV: token, owner, now (ms), how long (ms) and how many ids are kept.
# Returns 'gone' | {epoch, head, tail, reserved, messages, bytes, {released ...}, {Packet Identifier, `o` or `r` and message id, ...}}.
CLAIM = Script(
    COMMON
    + """
local state, refusal = numbers('epoch', 'head', 'tail', 'reserved', 'messages', 'bytes')
if refusal then return refusal end
if tonumber(state[2]) > tonumber(state[3]) then return damaged() end
passes_out_of_memory()
local epoch = state[1]
if redis.call('HGET', meta, 'token') ~= ARGV[1] then
  redis.call('HINCRBY', meta, 'epoch', 1) -- not in Lua: an epoch has 64 bits, a Lua number 53, so two epochs could become equal
  epoch = redis.call('HGET', meta, 'epoch')
  redis.call('HSET', meta, 'token', ARGV[1], 'owner', ARGV[2])
  redis.call('HDEL', meta, 'moved')
end
forget_ids(tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
local open = redis.call('HGETALL', inbound)
for at = 2, #open, 2 do open[at] = string.sub(open[at], 1, 17) end
return {epoch, state[2], state[3], state[4], state[5], state[6], redis.call('ZRANGE', released, 0, -1), open}
"""
)

# ARGV: epoch, after, how many, how many bytes of bodies. Returns 'gone' | {epoch} | {epoch, tail, whether it ends before the tail, records}.
READ = Script(
    COMMON
    + """
local state, refusal = numbers('epoch', 'tail')
if refusal then return refusal end
if state[1] ~= ARGV[1] then return {state[1]} end
local from, most, most_bytes = tonumber(ARGV[2]) + 1, tonumber(ARGV[3]), tonumber(ARGV[4])
local found, size, step = {}, 0, 4
while true do
  local wanted = math.min(most - #found, step)
  local part = redis.call('XRANGE', records, text(from), '+', 'COUNT', text(wanted))
  for _, entry in ipairs(part) do
    found[#found + 1] = entry
    size = size + #(entry[2][14] or '')
    if size >= most_bytes or #found >= most then return {state[1], state[2], 1, found} end
  end
  if #part < wanted then return {state[1], state[2], 0, found} end
  from = position_of(part[#part]) + 1
  step = math.min(step * 2, 256)
end
"""
)
