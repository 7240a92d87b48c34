-- The health of a ClusterSet on the broker for Argo CD. It holds settings, which take effect as soon as
-- they are stored.
return {status = "Healthy", message = "its settings are in effect"}
