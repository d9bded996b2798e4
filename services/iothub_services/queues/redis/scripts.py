"""The Lua scripts of writers, owners and operators, each for one queue: what Redis runs as a whole, or not at all.

Knows keys by their order (`names`), and no connection; what readers do is in `reader_scripts`. A script that comes upon damage, or fails of it,
may have done a part of its work: the queue is lost then, and goes as a whole.

Theory: Redis runs one script at a time, so a queue has one writer at any moment, whichever hubs call. Numbers are written by `text`: Lua's own
form of a large one has an exponent.

Invariant: a script that removes something begins with a write that needs no memory. Redis refuses only the first write of a script, never a
later one; so the script also runs while Redis is above `maxmemory`, and removing can free memory.

Record `POSITION-0`, always these fields in this order: v version 1 | q QoS | f flags | e deadline (ms, 0: none) | i subscription identifiers, by
commas | d message id (QoS 2, else empty) | b body.
Inbound: `o` message id 16 intent (`iothub.records.queued`) while it is not routed, then `r` message id 16.
"""

from __future__ import annotations

from iothub_services.redis.calls import Script

WRITERS_KEPT = 16  # of one queue: a writer is one life of one hub

COMMON = """
local meta, records, ids, remembered, due, qos0, writers, released, inbound = unpack(KEYS)

local function text(number)
  return string.format('%.0f', number)
end

-- Members of one score are in the order of their bytes.
local function padded(position)
  return string.rep('0', 20 - #position) .. position
end

local function position_of(entry)
  return tonumber(string.match(entry[1], '^%d+'))
end

local function damaged()
  return redis.error_reply('DAMAGED its state has something else where a number belongs')
end

-- Return fields of the state that are numbers, as texts, and what the script is to answer in place of its work, if they are not there.
local function numbers(...)
  local found = redis.call('HMGET', meta, ...)
  for at = 1, select('#', ...) do
    if not tonumber(found[at]) then
      if redis.call('EXISTS', meta) == 0 then return found, 'gone' end
      return found, damaged()
    end
  end
  return found, nil
end

local messages, bytes

-- Take a record out of counters and indexes. now: its message id goes on being known from then on; nil: it does not.
local function forget(entry, now)
  local fields, position = entry[2], text(position_of(entry))
  messages = messages - 1
  bytes = bytes - #(fields[14] or '')
  if fields[4] == '0' then redis.call('ZREM', qos0, position) end
  if (fields[8] or '0') ~= '0' then redis.call('ZREM', due, padded(position)) end
  if (fields[12] or '') ~= '' then
    if not now then
      redis.call('HDEL', ids, fields[12])
    elseif redis.call('HEXISTS', ids, fields[12]) == 1 then
      redis.call('ZADD', remembered, now, fields[12])
    end
  end
end

local function passes_out_of_memory()
  redis.call('HDEL', meta, '-')
end

local function count()
  redis.call('HSET', meta, 'messages', text(messages), 'bytes', text(bytes))
end

local function forget_ids(now, kept_ms, most)
  local old = redis.call('ZRANGEBYSCORE', remembered, '-inf', text(now - kept_ms), 'LIMIT', 0, 256)
  for _, id in ipairs(old) do
    redis.call('HDEL', ids, id)
    redis.call('ZREM', remembered, id)
  end
  local surplus = redis.call('ZCARD', remembered) - most
  if surplus > 0 then
    for _, id in ipairs(redis.call('ZRANGE', remembered, 0, math.min(surplus, 256) - 1)) do
      redis.call('HDEL', ids, id)
      redis.call('ZREM', remembered, id)
    end
  end
end
"""

# ARGV: writer, sequence, now (ms), the tenant's room (messages, bytes; -1: any), writers kept, the last position that the hub has heard of; then
# of each record QoS, flags, deadline, subscription identifiers, message id, body.
# Returns 'gone' | 'late' | messages, bytes, and for each record: `POSITION`, or `fLIMIT` if it is full; `dRECORD:LIMIT:POSITION,POSITION...` for
# what it dropped. `=FIRST` instead: all have their positions, one after another. Behind that `bTAIL`: the queue had gone back to that position.
APPEND = Script(
    COMMON
    + """
local state, refusal = numbers('tail', 'head', 'reserved', 'messages', 'bytes', 'max_messages', 'max_bytes', 'overflow')
if refusal then return refusal end
local writer, sequence, now = ARGV[1], ARGV[2], ARGV[3]
local before = redis.call('HGET', writers, writer)
if before then
  local last, answer = string.match(before, '^(%d+) %d+ (.*)$')
  if not last then return damaged() end
  if last == sequence then return answer end
  if tonumber(last) > tonumber(sequence) then return 'late' end
end
local oldest = nil
if not before and redis.call('HLEN', writers) >= tonumber(ARGV[6]) then
  local oldest_at = math.huge
  local all = redis.call('HGETALL', writers)
  for place = 1, #all, 2 do
    local at = tonumber(string.match(all[place + 1], '^%d+ (%d+) ') or '')
    if not at then return damaged() end
    if at < oldest_at then oldest, oldest_at = all[place], at end
  end
end
local tail, spared = tonumber(state[1]), math.max(tonumber(state[2]), tonumber(state[3]))
local max_messages, max_bytes, overflow = tonumber(state[6]), tonumber(state[7]), state[8]
local room_messages, room_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
messages, bytes = tonumber(state[4]), tonumber(state[5])

local function full(size)
  if max_messages > 0 and messages >= max_messages then return 1 end
  if max_bytes > 0 and bytes + size > max_bytes then return 2 end
  if room_messages == 0 then return 3 end
  if room_bytes >= 0 and size > room_bytes then return 4 end
  return 0
end

local function take_room(count, size)
  if room_messages >= 0 then room_messages = room_messages - count end
  if room_bytes >= 0 then room_bytes = room_bytes - size end
end

-- Choose by policy what is dropped, all that is needed or nothing; what may have been sent is spared. Returns records, or nil.
-- A member of `qos0` that is no position names no record.
local function victims_for(size)
  local is_qos0_only = overflow == '2'
  if overflow == '0' or (is_qos0_only and redis.call('ZCARD', qos0) == 0) then return nil end
  local need_messages, need_bytes = 0, 0
  if max_messages > 0 then need_messages = messages + 1 - max_messages end
  if room_messages >= 0 then need_messages = math.max(need_messages, 1 - room_messages) end
  if max_bytes > 0 then need_bytes = bytes + size - max_bytes end
  if room_bytes >= 0 then need_bytes = math.max(need_bytes, size - room_bytes) end
  if need_messages > messages or need_bytes > bytes then return nil end
  local victims, from = {}, spared + 1
  while need_messages > 0 or need_bytes > 0 do
    local part
    if is_qos0_only then
      part = {}
      for _, position in ipairs(redis.call('ZRANGEBYSCORE', qos0, text(from), '+inf', 'LIMIT', 0, 32)) do
        if string.find(position, '^%d+$') then part[#part + 1] = redis.call('XRANGE', records, position, position)[1] end
      end
    else
      part = redis.call('XRANGE', records, text(from), '+', 'COUNT', 32)
    end
    if #part == 0 then return nil end
    for _, entry in ipairs(part) do
      if need_messages <= 0 and need_bytes <= 0 then break end
      victims[#victims + 1] = entry
      need_messages = need_messages - 1
      need_bytes = need_bytes - #(entry[2][14] or '')
    end
    from = position_of(part[#part]) + 1
  end
  return victims
end

-- Called after the XADD that needs the space, never before: if Redis refused the XADD, the messages would be gone for nothing. Returns positions.
local function drop(victims)
  local positions = {}
  for _, entry in ipairs(victims) do
    redis.call('XDEL', records, entry[1])
    forget(entry, nil)
    take_room(-1, -#(entry[2][14] or ''))
    positions[#positions + 1] = text(position_of(entry))
  end
  return positions
end

local results, dropped, is_run, went_back = {}, {}, true, nil
if tail < tonumber(ARGV[7]) then
  went_back, tail = tail, tonumber(ARGV[7])
end
local first = tail + 1
for at = 8, #ARGV, 6 do
  local qos, id, body = ARGV[at], ARGV[at + 4], ARGV[at + 5]
  local known = id ~= '' and redis.call('HGET', ids, id)
  local limit, victims = 0, nil
  if not known then
    limit = full(#body)
    if limit > 0 then victims = victims_for(#body) end
  end
  if known then
    results[#results + 1] = known
    is_run = false
  elseif limit > 0 and not victims then
    results[#results + 1] = 'f' .. limit
    is_run = false
  else
    tail = tail + 1
    local position = text(tail)
    redis.call('XADD', records, position .. '-0', 'v', '1', 'q', qos, 'f', ARGV[at + 1], 'e', ARGV[at + 2],
      'i', ARGV[at + 3], 'd', id, 'b', body)
    if victims then
      dropped[#dropped + 1] = 'd' .. #results .. ':' .. limit .. ':' .. table.concat(drop(victims), ',')
      is_run = false
    end
    if id ~= '' then redis.call('HSET', ids, id, position) end
    if ARGV[at + 2] ~= '0' then redis.call('ZADD', due, ARGV[at + 2], padded(position)) end
    if qos == '0' then redis.call('ZADD', qos0, position, position) end
    messages = messages + 1
    bytes = bytes + #body
    take_room(1, #body)
    results[#results + 1] = position
  end
end
local answer = text(messages) .. ' ' .. text(bytes) .. ' '
if is_run then
  answer = answer .. '=' .. text(first)
else
  answer = answer .. table.concat(results, ' ')
  if #dropped > 0 then answer = answer .. ' ' .. table.concat(dropped, ' ') end
end
if went_back then answer = answer .. ' b' .. text(went_back) end
redis.call('HSET', meta, 'tail', text(tail), 'messages', text(messages), 'bytes', text(bytes))
if oldest then redis.call('HDEL', writers, oldest) end
redis.call('HSET', writers, writer, sequence .. ' ' .. now .. ' ' .. answer)
return answer
"""
)

# ARGV: token, tenant, epoch, most messages, most bytes, overflow. Returns 1 if it is made, by this token, else 0.
CREATE = Script(
    COMMON
    + """
local made = redis.call('HGET', meta, 'made')
if made then
  if made == ARGV[1] then return 1 end
  return 0
end
redis.call('HSET', meta, 'v', '1', 'made', ARGV[1], 'tenant', ARGV[2], 'epoch', ARGV[3], 'max_messages', ARGV[4],
  'max_bytes', ARGV[5], 'overflow', ARGV[6], 'tail', '0', 'head', '0', 'reserved', '0', 'messages', '0', 'bytes', '0')
return 1
"""
)

# ARGV: most messages, most bytes, overflow. Returns 1, or 0 if the queue is gone.
LIMIT = Script(
    COMMON
    + """
if redis.call('EXISTS', meta) == 0 then return 0 end
passes_out_of_memory()
redis.call('HSET', meta, 'max_messages', ARGV[1], 'max_bytes', ARGV[2], 'overflow', ARGV[3])
return 1
"""
)

# Returns how many records the queue had, as far as it can be read; -1 if it is gone.
DROP = Script("""
local had = redis.pcall('HGET', KEYS[1], 'messages')
redis.call('UNLINK', unpack(KEYS))
if not had then return -1 end
return tonumber(had) or 0
""")

# ARGV: up to which position, how many at most. Returns 'gone' | {removed, messages, bytes, whether there are more}.
PURGE = Script(
    COMMON
    + """
local state, refusal = numbers('messages', 'bytes', 'tail')
if refusal then return refusal end
messages, bytes = tonumber(state[1]), tonumber(state[2])
passes_out_of_memory()
local part = redis.call('XRANGE', records, '-', ARGV[1], 'COUNT', ARGV[2])
for _, entry in ipairs(part) do forget(entry, nil) end
local is_more = #part == tonumber(ARGV[2])
if is_more then
  redis.call('XTRIM', records, 'MINID', text(position_of(part[#part]) + 1))
else
  redis.call('XTRIM', records, 'MINID', text(tonumber(ARGV[1]) + 1))
end
count()
return {#part, text(messages), text(bytes), is_more and 1 or 0}
"""
)

# ARGV: now (ms), whether positions up to `reserved` go as well (0, 1); then positions.
# Returns 'gone' | {messages, bytes, {removed ...}, {spared ...}}.
EXPIRE = Script(
    COMMON
    + """
local state, refusal = numbers('reserved', 'messages', 'bytes')
if refusal then return refusal end
local reserved, now, is_unsent = tonumber(state[1]), tonumber(ARGV[1]), ARGV[2] == '1'
messages, bytes = tonumber(state[2]), tonumber(state[3])
local gone, spared = {}, {}
for at = 3, #ARGV do
  local entry = redis.call('XRANGE', records, ARGV[at], ARGV[at])[1]
  local deadline = entry and tonumber(entry[2][8]) or 0
  if deadline > 0 and deadline <= now then
    if is_unsent or tonumber(ARGV[at]) > reserved then
      redis.call('XDEL', records, entry[1])
      forget(entry, nil)
      gone[#gone + 1] = ARGV[at]
    else
      spared[#spared + 1] = ARGV[at]
    end
  end
end
if #gone > 0 then count() end
return {text(messages), text(bytes), gone, spared}
"""
)
