import os


def help_out(text):
    return f"{text} with help of {os.path.basename(os.path.dirname(__file__))}"
