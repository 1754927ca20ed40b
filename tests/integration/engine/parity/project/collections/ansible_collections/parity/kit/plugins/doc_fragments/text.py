class ModuleDocFragment:
    DOCUMENTATION = """
options:
  text: {description: [text], type: str}
"""
