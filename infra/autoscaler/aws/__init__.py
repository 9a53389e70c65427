"""The AWS side: reads Auto Scaling groups in all regions in parallel, and writes to them."""
