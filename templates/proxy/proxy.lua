-- The front proxy's own few lines: hold a request while its server is away, and say the figures. Written by Wattherd.
-- The body of a held request is still unread, so its size does not matter. Lua 5.3; nothing newer than HAProxy 2.0.

local PAUSE_MS = 100
-- A waiting request marks every pause. One that does not is gone: its client hung up.
local SILENT_S = 5

local waiting = {} -- instance -> { [ticket] = second of its last sign }
local counted = {} -- instance -> { held =, refused =, timed_out = } since this worker started
local tickets = 0

local function now_s()
    local now = core.now()
    return now.sec + now.usec / 1000000
end

local function count(instance, what)
    counted[instance] = counted[instance] or { held = 0, refused = 0, timed_out = 0 }
    if what then
        counted[instance][what] = counted[instance][what] + 1
    end
    return counted[instance]
end

local function held(instance)
    local number, oldest_s = 0, now_s() - SILENT_S
    for ticket, seen_s in pairs(waiting[instance] or {}) do
        if seen_s < oldest_s then
            waiting[instance][ticket] = nil
        else
            number = number + 1
        end
    end
    return number
end

local function server_of(instance)
    return core.backends[instance].servers["llama"]:get_stats()
end

-- Up, and seen so: a proxy that just started takes every server for up until its first check.
local function is_up(stats)
    return string.sub(stats["status"], 1, 2) == "UP" and string.find(stats["check_status"] or "", "L7OK", 1, true) ~= nil
end

local function refuse(txn, instance, why)
    count(instance, why)
    txn:set_var("txn.refused", why)
end

-- `slots` 0: a request that takes none. What passes while all slots are busy waits in HAProxy's own queue, in order.
local function admit(txn, instance, slots, length, wait_s, away)
    slots, length, wait_s = tonumber(slots), tonumber(length), tonumber(wait_s)
    local stats = server_of(instance)
    local up = is_up(stats)
    local queued = tonumber(core.backends[instance]:get_stats()["qcur"]) or 0
    if up and (slots == 0 or (queued == 0 and (tonumber(stats["scur"]) or 0) < slots)) then
        return
    end
    if not up and away == "refuse" then
        return refuse(txn, instance, "refused")
    end
    if held(instance) + queued >= length then
        return refuse(txn, instance, "refused")
    end
    if up then
        return
    end
    count(instance, "held")
    tickets = tickets + 1
    local ticket, ends_s = tickets, now_s() + wait_s
    waiting[instance] = waiting[instance] or {}
    repeat
        waiting[instance][ticket] = now_s()
        core.msleep(PAUSE_MS)
        if is_up(server_of(instance)) then
            waiting[instance][ticket] = nil
            return
        end
    until now_s() >= ends_s
    waiting[instance][ticket] = nil
    refuse(txn, instance, "timed_out")
end

core.register_action("admit", { "http-req" }, admit, 5)

local FIGURES = {
    { "wattherd_proxy_up", "gauge", "1 while the server answers and is not drained" },
    { "wattherd_proxy_requests_in_flight", "gauge", "requests that the server works on" },
    { "wattherd_proxy_requests_queued", "gauge", "requests that wait for a slot" },
    { "wattherd_proxy_requests_held", "gauge", "requests that wait for the server to come back" },
    { "wattherd_proxy_requests_total", "counter", "requests that came to the slots" },
    { "wattherd_proxy_held_total", "counter", "requests that had to wait for the server to come back" },
    { "wattherd_proxy_refused_total", "counter", "requests that found the queue full, or the server away" },
    { "wattherd_proxy_timed_out_total", "counter", "requests that waited for the server as long as they may" },
}

local function figures_of(instance)
    local stats, backend, seen = server_of(instance), core.backends[instance]:get_stats(), count(instance)
    local aside = core.backends[instance .. ":aside"]:get_stats()
    return {
        is_up(stats) and 1 or 0,
        (tonumber(stats["scur"]) or 0) + (tonumber(aside["scur"]) or 0),
        tonumber(backend["qcur"]) or 0,
        held(instance),
        tonumber(backend["stot"]) or 0,
        seen.held,
        seen.refused,
        seen.timed_out,
    }
end

local function figures(applet)
    local instances, rows = {}, {}
    for name in pairs(core.backends) do
        if core.backends[name].servers["llama"] and not string.find(name, ":", 1, true) then
            instances[#instances + 1] = name
        end
    end
    table.sort(instances)
    local values = {}
    for _, instance in ipairs(instances) do
        values[instance] = figures_of(instance)
    end
    for index, figure in ipairs(FIGURES) do
        rows[#rows + 1] = "# HELP " .. figure[1] .. " " .. figure[3]
        rows[#rows + 1] = "# TYPE " .. figure[1] .. " " .. figure[2]
        for _, instance in ipairs(instances) do
            rows[#rows + 1] = string.format('%s{server="%s"} %d', figure[1], instance, values[instance][index])
        end
    end
    local body = table.concat(rows, "\n") .. "\n"
    applet:set_status(200)
    applet:add_header("Content-Type", "text/plain; version=0.0.4")
    applet:add_header("Content-Length", tostring(#body))
    applet:start_response()
    applet:send(body)
end

core.register_service("figures", "http", figures)
