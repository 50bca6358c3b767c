"""Has anything become slower? A short run whose ratios are compared with kept ones."""
