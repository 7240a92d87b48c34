-- The health of a ServiceImport for Argo CD: Healthy when clients can use it, Degraded when only a user
-- can help, Progressing otherwise.
local hs = {status = "Progressing", message = "waiting for seamark-agent"}
if obj.status == nil or obj.status.conditions == nil then
  return hs
end
local ready, stalled, notes = nil, nil, {}
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    ready = condition
  elseif condition.type == "Stalled" then
    stalled = condition
  elseif condition.status == "True" then
    table.insert(notes, condition.message)
  end
end
if ready == nil then
  return hs
end
hs.message = ready.message
if stalled ~= nil and stalled.status == "True" then
  hs.status = "Degraded"
  hs.message = stalled.message
elseif ready.status == "True" then
  hs.status = "Healthy"
  if #notes > 0 then
    hs.message = ready.message .. "; " .. table.concat(notes, "; ")
  end
end
return hs
