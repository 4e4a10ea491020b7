{{/* Name of what the chart makes; with room for what follows it. */}}
{{- define "millrace.fullname" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}
{{- $name = printf "%s-%s" .Release.Name .Chart.Name }}
{{- end }}
{{- .Values.fullnameOverride | default $name | trunc 45 | trimSuffix "-" }}
{{- end }}

{{/* Name of what belongs to the operator itself. */}}
{{- define "millrace.operator" -}}
{{ include "millrace.fullname" . }}-operator
{{- end }}

{{- define "millrace.releaseLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels that find the operator's pods: drivers have the same name, and another component. */}}
{{- define "millrace.selectorLabels" -}}
{{ include "millrace.releaseLabels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{/* Labels of all objects. */}}
{{- define "millrace.labels" -}}
{{ include "millrace.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "millrace.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "millrace.operator" .) "default") }}
{{- end }}

{{/* An image, of a list: its values, and the tag of one without. */}}
{{- define "millrace.image" -}}
{{- $image := first . }}
{{- with $image.digest }}
{{- printf "%s@%s" $image.repository . }}
{{- else }}
{{- printf "%s:%s" $image.repository ($image.tag | default (last .)) }}
{{- end }}
{{- end }}

{{/* The restricted pod security level, for a pod. */}}
{{- define "millrace.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The restricted pod security level, for a container. */}}
{{- define "millrace.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What of the values cannot be, and no schema can say as clearly. */}}
{{- define "millrace.check" -}}
{{- with .Values.prometheus }}
{{- range $name := list "caSecret" "tokenSecret" "basicAuthSecret" }}
{{- if and (get $.Values.prometheus $name).name (not $.Values.prometheus.url) }}
{{- fail (printf "prometheus.%s.name is set, but prometheus.url is not: write the URL too, or leave the Secret out" $name) }}
{{- end }}
{{- end }}
{{- if and .tokenSecret.name .basicAuthSecret.name }}
{{- fail "prometheus.tokenSecret and prometheus.basicAuthSecret are both set: keep one of them" }}
{{- end }}
{{- if and .caSecret.name (hasPrefix "http:" .url) }}
{{- fail (printf "prometheus.caSecret.name is set, but prometheus.url is %s: write https://" .url) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The policy, as the operator reads it. */}}
{{- define "millrace.policy" -}}
{{ toYaml (dict "policy" .Values.policy) }}
{{- end }}

{{/* A small query of the given name, without its checkpoint: for `helm test`, and for who has just installed the chart. */}}
{{- define "millrace.smallQuery" -}}
sources:
  ticks:
    rate: {recordsPerSecond: 10}
query:
  sql: SELECT key, value FROM ticks WHERE value >= 0.5
sink:
  console: {}
batchInterval: 2s
parallelism: {max: 1}
executors:
  initial: 1
  max: 1
  cores: 1
  memory: 512m
  podTemplate:  # on the driver's node: a volume of most storage classes is mounted on one node at a time
    spec:
      affinity:
        podAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector: {matchLabels: {millrace.io/query: {{ . }}, millrace.io/role: driver}}
driver: {cores: 1, memory: 1g}
scaling: {mode: "Off"}
{{- end }}
