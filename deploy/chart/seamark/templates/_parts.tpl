{{- /* Labels of every object. The argument is a dict of root and, for objects of one workload, component. */ -}}
{{- define "seamark.labels" -}}
app.kubernetes.io/name: seamark
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/part-of: seamark
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which a workload selects its pods. They never change, because a selector is immutable. */ -}}
{{- define "seamark.selector" -}}
app.kubernetes.io/name: seamark
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /*
Labels of pods. They do not change with the version of the chart: an upgrade would replace every pod only for a label.
*/ -}}
{{- define "seamark.pod.labels" -}}
{{ include "seamark.selector" . }}
app.kubernetes.io/part-of: seamark
{{- end }}

{{- define "seamark.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default (.Chart.AppVersion | replace "+" "_")) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- /* Fields of all pods. The argument is a dict of root and component. */ -}}
{{- define "seamark.pod" -}}
serviceAccountName: seamark-{{ .component }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
priorityClassName: {{ .root.Values.priorityClassName | default "seamark-critical" | quote }}
nodeSelector:
  kubernetes.io/os: linux
{{- end }}

{{- /* Fields of pods of Deployments: they meet the restricted security standard, and replicas are spread over nodes and zones. */ -}}
{{- define "seamark.deployment.pod" -}}
{{ include "seamark.pod" . }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "seamark.selector" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

{{- /* Not empty if the agent configures the cluster's DNS. The values are absent after helm upgrade --reuse-values from a chart without them. */ -}}
{{- define "seamark.configuresDNS" -}}
{{- if and .Values.clusterDNS .Values.clusterDNS.configure -}}
true
{{- end -}}
{{- end }}

{{- define "seamark.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Whether seamark-proxy runs on the nodes: as the data plane, or beside that of the cluster for failovers. */}}
{{- define "seamark.runsProxy" -}}
{{- if or (eq .Values.dataPlane "nftables") (and (eq .Values.dataPlane "service") .Values.proxy.failover) -}}true{{- end -}}
{{- end -}}
