"""The report of `ninelives chaos`.

- `terminal`: progress bar and text report; `html`: the same as one page
- `plots`, `timelines`: the SVG figures of that page
- `command`: runs the campaign and returns the report
"""
