module bpfcost/l7-go

go 1.19
