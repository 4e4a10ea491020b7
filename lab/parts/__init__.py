"""What the services of the lab consist of: programs, jars, packages and images.

``make lab`` (``python -m lab``) makes each part once and keeps it in the lab's cache; tests only find it there. Nothing
here imports anything of Millrace or of the services.
"""
