# Fills the tables of the datapath as xdp-lb does, with as much as two flows need.
set -e
PATH=$PATH:/usr/sbin
cd "$BPFCOST_MAPS"
rest='0 0 0 0 0 0 0 0 0 0 0 0'
# 10.10.1.1:80 by its flows, and 10.10.1.2:80 by its ring; TCP.
bpftool map update pinned vips key 10 10 1 1 $rest 0 80 6 0 value 0 0 0 0 0 0 0 0
bpftool map update pinned vips key 10 10 1 2 $rest 0 80 6 0 value 1 0 0 0 1 0 0 0
bpftool map update pinned reals key 0 0 0 0 value 192 168 1 2 $rest 0 0 0 0
bpftool map update pinned control key 0 0 0 0 value 2 0 0 0 0 9 0 0 0 0 0 0
bpftool map create flows type lru_hash key 40 value 16 entries 100000 name lru
bpftool map update pinned lru_tables key 0 0 0 0 value pinned "$PWD/flows"
rm flows
