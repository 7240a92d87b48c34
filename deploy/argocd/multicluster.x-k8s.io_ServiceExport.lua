-- The health of a ServiceExport for Argo CD: Healthy when the service is published, Degraded when only
-- a user can help, Progressing otherwise. A conflict with other clusters does not make it unhealthy:
-- the service works, as the oldest export decides.
local hs = {status = "Progressing", message = "waiting for seamark-agent: does it run, and is this cluster a member of a clusterset?"}
local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    conditions[condition.type] = condition
  end
end
local ready, stalled, conflict = conditions.Ready, conditions.Stalled, conditions.Conflict
if ready == nil then
  return hs
end
hs.message = ready.message
if ready.observedGeneration ~= nil and obj.metadata.generation ~= nil and ready.observedGeneration < obj.metadata.generation then
  hs.message = "the last change has not been seen yet"
elseif stalled ~= nil and stalled.status == "True" then
  hs.status = "Degraded"
  hs.message = stalled.message
elseif ready.status == "True" then
  hs.status = "Healthy"
  if conflict ~= nil and conflict.status == "True" then
    hs.message = ready.message .. "; " .. conflict.message
  end
end
return hs
