local Machine = {}
Machine.__index = Machine

--- Builds a machine from a table of transitions:
-- { idle = { start = "running" }, running = { stop = "idle" } }
function Machine.new(transitions, initial)
  assert(transitions[initial], "unknown state: " .. tostring(initial))
  return setmetatable({
    transitions = transitions,
    state = initial,
    hooks = {},
    log = {},
  }, Machine)
end

function Machine:on(state, hook)
  self.hooks[state] = self.hooks[state] or {}
  table.insert(self.hooks[state], hook)
  return self
end

function Machine:fire(event, ...)
  local target = self.transitions[self.state][event]
  if not target then
    return nil, ("no %q from %q"):format(event, self.state)
  end
  self.log[#self.log + 1] = self.state .. " -> " .. target
  self.state = target
  for _, hook in ipairs(self.hooks[target] or {}) do
    hook(...)
  end
  return target
end

local door = Machine.new({
  open = { close = "closed" },
  closed = { open = "open", lock = "locked" },
  locked = { unlock = "closed" },
}, "open")

local pin
door:on("locked", function(code) pin = code end)

assert(door:fire("close") == "closed")
assert(door:fire("lock", 4711) == "locked" and pin == 4711)
local ok, err = door:fire("open")
print(ok, err)
print(table.concat(door.log, "\n"))

return Machine
