module bpfcost

go 1.19
