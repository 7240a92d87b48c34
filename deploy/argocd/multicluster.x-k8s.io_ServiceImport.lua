-- The health of a ServiceImport for Argo CD: Healthy when clients can use it, Degraded when it cannot
-- be used, Progressing before the agent has reported.
local hs = {status = "Progressing", message = "waiting for seamark-agent"}
if obj.status == nil or obj.status.conditions == nil then
  return hs
end
local notes = {}
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    hs.message = condition.message
    if condition.status == "True" then
      hs.status = "Healthy"
    elseif condition.reason ~= "Pending" then
      hs.status = "Degraded"
    end
  elseif condition.status == "True" then
    table.insert(notes, condition.message)
  end
end
if hs.status == "Healthy" and #notes > 0 then
  hs.message = hs.message .. "; " .. table.concat(notes, "; ")
end
return hs
