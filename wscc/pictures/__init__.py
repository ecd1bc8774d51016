"""Pictures of a compiled program as SVG text: the wafer with its rings, the timeline of a step, the load of links.

Each picture is a pure function of plain frozen facts: equal facts give equal bytes. A picture has no scripts, asks for
no fonts or files, and brings its own background, so that it reads the same on a light and on a dark page.
"""
