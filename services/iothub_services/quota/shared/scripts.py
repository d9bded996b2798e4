"""The ledger's scripts: what must happen at once in Redis, so that what all hubs hold together is never above a limit.

Knows no tenant and no connection: names, limits and figures are arguments. Time is Redis' own; no hub's clock is asked.

Theory. A hub holds a lease and runs scripts that are numbered. A script of a hub without a lease, or with another number than the next one, does
nothing and answers `LAPSED`: Redis was emptied, a fail-over has lost what it had said, or the hub was silent for too long. Then it comes
back under another name, declares what it holds, and only then lets its old name go; so what it holds is never counted too little.

- Where nothing was (`state` is missing), or something may be lost (a number is not the next one, a hub comes back), no count is granted until
  `settled`: every hub that lives has declared by then what it holds. A Redis that was killed may lack what it had said a moment before.
- When no hub at all was there for `GAP_MS`, Redis itself was away, or its clock was set: every lease that held then begins anew, and nothing
  is lost. One that had ended before has ended: others may have got what was held under it.
- A grant is never more than the limit leaves; what exists already (`used`) is counted whatever the limit says.
- A hub that declares more than the limit leaves makes every hub that has some of it ask: so they learn that nothing is free any more.
- A hub may be granted more than it asks for, its spare: not while another hub wants it, and never more than its part of half of what is free.
"""

from __future__ import annotations

from iothub_services.redis.calls import Script

LAPSED = -1
LEASE_MS = 10_000
SETTLE_MS = 3_000
GAP_MS = 2_000
WANTED_MS = 2_000
KEPT_S = 3_600  # a key that no hub declares for so long expires; hubs declare everything more often

# KEYS 1 hubs, 2 state. ARGV 1 hub, 2 number, 3 lease.
_COMMON = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local hub = ARGV[1]
local lease = tonumber(ARGV[3])

local function parsed(text)
  local a, b = string.match(text, '^(%S+) (%S+)$')
  return tonumber(a) or 0, tonumber(b) or 0
end

local function leases()
  local raw = redis.call('HGETALL', KEYS[1])
  local found = {}
  for i = 1, #raw, 2 do
    local until_ms, number = parsed(raw[i + 1])
    found[raw[i]] = {until_ms, number}
  end
  return found
end

local function seen()
  local last = tonumber(redis.call('HGET', KEYS[2], 'seen') or '0')
  local found = leases()
  if math.abs(now - last) > GAP then
    for name, held in pairs(found) do
      if held[1] < last then
        found[name] = nil
        redis.call('HDEL', KEYS[1], name)
      else
        held[1] = now + lease
        redis.call('HSET', KEYS[1], name, string.format('%d %d', held[1], held[2]))
      end
    end
    if tonumber(redis.call('HGET', KEYS[2], 'settled')) > now + SETTLE then
      redis.call('HSET', KEYS[2], 'settled', string.format('%d', now + SETTLE))
    end
  end
  redis.call('HSET', KEYS[2], 'seen', string.format('%d', now))
  return found
end

local function present()
  if not redis.call('HGET', KEYS[2], 'settled') then
    return nil
  end
  local found = seen()
  local held = found[hub]
  if not held or held[1] < now then
    return nil
  end
  if held[2] + 1 ~= tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[2], 'settled', string.format('%d', now + SETTLE))
    redis.call('HDEL', KEYS[1], hub)
    return nil
  end
  redis.call('HSET', KEYS[1], hub, string.format('%d %d', now + lease, held[2] + 1))
  local living, count = {}, 0
  for name, other in pairs(found) do
    if other[1] >= now then
      living[name] = true
      count = count + 1
    end
  end
  return living, count, math.max(tonumber(redis.call('HGET', KEYS[2], 'settled')) - now, 0)
end
""".replace("GAP", str(GAP_MS)).replace("SETTLE", str(SETTLE_MS))


def _script(text: str) -> Script:
    return Script(_COMMON + text)


# ARGV 4 how long others have time to come back, 5 '1' from who was there before. Answers how long they still have.
ENTER = _script("""
if ARGV[5] == '1' or not redis.call('HGET', KEYS[2], 'settled') then
  redis.call('HSET', KEYS[2], 'settled', string.format('%d', now + tonumber(ARGV[4])))
end
seen()
redis.call('HSET', KEYS[1], hub, string.format('%d %d', now + lease, tonumber(ARGV[2])))
return math.max(tonumber(redis.call('HGET', KEYS[2], 'settled')) - now, 0)
""")

# ARGV 4 how the names of hubs of this data directory begin: all but this one are of the past. Answers how many they were.
CLAIM = _script("""
if not present() then
  return -1
end
local gone = 0
for name, _ in pairs(leases()) do
  if name ~= hub and string.sub(name, 1, #ARGV[4]) == ARGV[4] then
    redis.call('HDEL', KEYS[1], name)
    gone = gone + 1
  end
end
return gone
""")

LEAVE = _script("return redis.call('HDEL', KEYS[1], hub)")

# KEYS 3 wanted. ARGV 4 how long a want lasts. Answers {ms to settle, hubs, names that are wanted ...}.
TURN = _script("""
local living, count, initialising = present()
if not living then
  return {-1}
end
for name, held in pairs(leases()) do
  if held[1] < now - lease then
    redis.call('HDEL', KEYS[1], name)
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - tonumber(ARGV[4]))
local answer = redis.call('ZRANGE', KEYS[3], 0, 999)
table.insert(answer, 1, count)
table.insert(answer, 1, initialising)
return answer
""")

# KEYS 3 wanted, 4... counts. ARGV 4 how long a want lasts, 5 how long a key is kept (s), 6... for each count: name, limit, used, needed, wished.
# Answers {ms to settle, granted, others, spare of others, granted, others, ...}. While others settle, only what is used is granted.
RESERVE = _script("""
local living, count, initialising = present()
if not living then
  return {-1}
end
local answer = {initialising}
for i = 4, #KEYS do
  local at = 6 + (i - 4) * 5
  local name, limit, used = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local needed, wished = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local raw = redis.call('HGETALL', KEYS[i])
  local before, others, spare = 0, 0, 0
  for j = 1, #raw, 2 do
    if not living[raw[j]] then
      redis.call('HDEL', KEYS[i], raw[j])
    elseif raw[j] ~= hub then
      local held, unused = parsed(raw[j + 1])
      others = others + held
      spare = spare + unused
    else
      before = parsed(raw[j + 1])
    end
  end
  local granted = used
  if initialising == 0 and limit - others > used then
    local free = limit - others
    granted = math.min(needed, free)
    if granted == needed and wished > needed then
      local score = tonumber(redis.call('ZSCORE', KEYS[3], name) or '0')
      if now - score > tonumber(ARGV[4]) then
        granted = granted + math.max(math.min(wished - needed, math.floor((free - needed) / (2 * count))), 0)
      end
    end
  end
  if granted > 0 then
    redis.call('HSET', KEYS[i], hub, string.format('%d %d', granted, granted - used))
    redis.call('EXPIRE', KEYS[i], ARGV[5])
  else
    redis.call('HDEL', KEYS[i], hub)
  end
  if (granted < needed or granted + others > limit) and spare > 0 or granted + others > limit and granted > before then
    redis.call('ZADD', KEYS[3], now, name)
  end
  answer[#answer + 1] = granted
  answer[#answer + 1] = others
  answer[#answer + 1] = spare
end
return answer
""")

# KEYS 3 wanted, 4... rates. ARGV 4 how long a key is kept (s), 5... for each rate: name, limit, wished (less than 0: nothing any more), held now.
# Answers {ms to settle, share, share, ...} as text: to every hub in proportion to its wish if all fit, else fair parts;
# never what another one still holds.
# While others settle, each hub keeps what it holds.
SHARE = _script("""
local living, count, initialising = present()
if not living then
  return {-1}
end
local answer = {initialising}
for i = 4, #KEYS do
  local at = 5 + (i - 4) * 4
  local name, limit = ARGV[at], tonumber(ARGV[at + 1])
  local wish, share = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local raw = redis.call('HGETALL', KEYS[i])
  local held, total, wishes = 0, wish, {wish}
  for j = 1, #raw, 2 do
    if not living[raw[j]] then
      redis.call('HDEL', KEYS[i], raw[j])
    elseif raw[j] ~= hub then
      local has, wants = parsed(raw[j + 1])
      held = held + has
      total = total + wants
      wishes[#wishes + 1] = wants
    end
  end
  local target = wish * limit / total
  if total > limit then
    table.sort(wishes)
    local left, many = limit, #wishes
    for _, each in ipairs(wishes) do
      local part = math.min(each, left / many)
      left, many = left - part, many - 1
      if each == wish then
        target = part
        break
      end
    end
  end
  if wish < 0 then
    share = 0
    redis.call('HDEL', KEYS[i], hub)
  else
    if initialising == 0 then
      share = math.max(math.min(target, limit - held), 0)
      if share < target * 0.98 then
        redis.call('ZADD', KEYS[3], now, name)
      end
    end
    redis.call('HSET', KEYS[i], hub, string.format('%.6f %.6f', share, wish))
    redis.call('EXPIRE', KEYS[i], ARGV[4])
  end
  answer[#answer + 1] = string.format('%.6f', share)
end
return answer
""")

# KEYS 3... windows. ARGV 4 whose figures they are, 5... for each window: used, when its key may go (Unix s), 1 if it begins anew. Answers
# {0, what others have used of each ...}. Otherwise a figure never becomes less: a data directory that was lost has used what it had used.
ADD_UP = _script("""
if not present() then
  return {-1}
end
local answer = {0}
for i = 3, #KEYS do
  local at = 5 + (i - 3) * 3
  local used = tonumber(ARGV[at])
  local known = tonumber(redis.call('HGET', KEYS[i], ARGV[4]) or '0')
  if used > known or ARGV[at + 2] == '1' then
    redis.call('HSET', KEYS[i], ARGV[4], ARGV[at])
    redis.call('EXPIREAT', KEYS[i], ARGV[at + 1])
  end
  local total = 0
  for _, each in ipairs(redis.call('HVALS', KEYS[i])) do
    total = total + tonumber(each)
  end
  answer[#answer + 1] = string.format('%d', total - used)
end
return answer
""")
