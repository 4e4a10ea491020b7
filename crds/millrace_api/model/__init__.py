"""The models of a StreamQuery, its plan and its status: what each field means, and its limits."""
