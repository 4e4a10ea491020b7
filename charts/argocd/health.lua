-- Health of a StreamQuery in Argo CD: the key resource.customizations.health.millrace.io_StreamQuery of the ConfigMap
-- argocd-cm. See docs/install.md.

-- Reasons of Ready=False that end by themselves.
local passing = {Deploying = true, FirstBatch = true, Draining = true, Deleting = true, WaitingForUpstream = true,
    DriverLost = true, Queued = true}

local status = obj.status or {}
local conditions = {}
for _, each in ipairs(status.conditions or {}) do
  conditions[each.type] = each
end
local ready, progressing, degraded = conditions.Ready, conditions.Progressing, conditions.Degraded

local function health(name, condition)
  return {status = name, message = condition.reason .. ": " .. (condition.message or "")}
end

if status.observedGeneration ~= obj.metadata.generation or ready == nil then
  return {status = "Progressing", message = "the operator has not seen this version yet"}
end
if progressing ~= nil and progressing.reason == "Paused" then
  return health("Suspended", progressing)
end
if ready.reason == "Suspended" then
  return health("Suspended", ready)
end
if degraded ~= nil and degraded.status == "True" then
  return health("Degraded", degraded)
end
if ready.status == "True" then
  if progressing ~= nil and progressing.status == "True" then
    return health("Progressing", progressing)
  end
  return health("Healthy", ready)
end
return health((passing[ready.reason] or ready.status == "Unknown") and "Progressing" or "Degraded", ready)
