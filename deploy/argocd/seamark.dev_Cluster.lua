-- The health of a Cluster on the broker for Argo CD: Progressing until the cluster has joined. Whether
-- it is alive now is in its Lease: see seamark status.
local hs = {status = "Progressing", message = "invited; its agent has not connected yet"}
if obj.status ~= nil and obj.status.agentVersion ~= nil and obj.status.agentVersion ~= "" then
  hs.status = "Healthy"
  hs.message = "joined, with agent " .. obj.status.agentVersion
end
return hs
