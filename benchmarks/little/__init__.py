"""What a student gives as the little model beside the one that it was made of: `python -m benchmarks.little`."""
