module dsv4/examples/go

go 1.19
