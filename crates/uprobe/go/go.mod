module bpfcost/uprobe

go 1.19
