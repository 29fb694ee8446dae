module github.com/weir-ml/weir/stages/gomlx

go 1.26.5

require (
	github.com/gomlx/compute v0.1.2
	github.com/gomlx/gomlx v0.28.2
	github.com/stretchr/testify v1.12.1
	github.com/weir-ml/weir v0.1.0
)

require (
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20261014143641-f0251eb4aa3e // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
)

replace github.com/weir-ml/weir => ../..
