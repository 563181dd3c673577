"""The execution model: costs of instructions, places of tensors, and the event simulation over them.

Read `simulate` first; `steps` prepares for it, `layout` and `pools` limit it, `lanes` and `costs` say how long things
take, `steady` says when a loop need not be run any further.
"""
